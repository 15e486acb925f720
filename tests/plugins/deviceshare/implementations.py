"""What the cases of deviceshare spec 7 run against."""

from tests.plugins.deviceshare.implementation import NaiveImplementation
from tests.plugins.deviceshare.realplugin import RealImplementation

IMPLEMENTATIONS = [NaiveImplementation, RealImplementation]
