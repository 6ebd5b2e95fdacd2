"""What an op costs on a device: tables of measured costs."""
