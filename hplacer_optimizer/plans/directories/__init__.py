"""Plan files where they lie: on a local disk, or at a TensorFlow filesystem address.

files.py        what both offer of one directory            paths.py   one file by its path
local_files.py  a directory of a local disk, under a lock   gfile.py   one at an address
"""
