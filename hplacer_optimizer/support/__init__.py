"""What every package needs: processes, new files, strict YAML, quantities, and formats."""
