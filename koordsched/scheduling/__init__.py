"""The loop: watch events in, scheduling cycles, binding cycles, and what happens when they fail."""
