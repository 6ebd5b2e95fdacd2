"""A plan explained.

inspection.py    a plan, simulated again                explanation.py   why this fast and no faster
comparison.py    two plans                              what_if.py       other hardware
critical_path.py what the step time consists of         loads.py         what devices do
chrome_trace.py  a trace to look at                     tracks.py, arrivals.py  what it consists of
report/          one HTML page                          exports/         for other programs
"""
