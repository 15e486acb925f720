"""The wire: typed objects by API group, quantities, selectors, and the names of labels and annotations.

This package imports nothing else of koordsched.
"""
