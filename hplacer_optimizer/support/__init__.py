"""What every room needs: child processes, new files, strict YAML, quantities and their formats."""
