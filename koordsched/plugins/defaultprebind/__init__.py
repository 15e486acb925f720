"""DefaultPreBind: the name under which one patch writes what all PreBind plugins change (loadaware spec C)."""

from koordsched.config.catalog import entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.defaultprebind.plugin import DefaultPreBind

DECLARATION = Declaration(name=DefaultPreBind.name, factory=DefaultPreBind, entry=entry("preBind"))
