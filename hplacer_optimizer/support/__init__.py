"""What every room needs: processes, new files, strict YAML, quantities, and how things look."""
