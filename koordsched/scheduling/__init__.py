"""The loop: watch events in, scheduling cycles, binding cycles, and the handling of their failures."""
