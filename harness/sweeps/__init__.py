"""Many targets, side by side, and what their failures have in common."""
