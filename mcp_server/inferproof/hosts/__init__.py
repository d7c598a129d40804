"""Where jobs run. The only code that starts processes or opens connections."""
