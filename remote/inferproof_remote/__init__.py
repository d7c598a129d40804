"""What runs on the target: standard library, plus torch where the target has it."""
