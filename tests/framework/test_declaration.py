"""What a plugin declares of itself."""

from koordsched.framework.declaration import report_pages


def test_a_report_has_a_page_of_all_things_and_a_page_of_each():
    pages = report_pages("/things", lambda plugin: [plugin], lambda plugin, name: (plugin, name))
    answers = {page.path: page.answer("plugin", {"name": "x"}) for page in pages}
    assert answers == {"/things": ["plugin"], "/things/{name}": ("plugin", "x")}
