"""Plain search over a baseline's options: propose, measure, judge, and find the bar."""
