"""A placed problem explained: its simulated step as a report, as figures and for other programs.

simulated_step.py   what all of it is made from         provenance.py   who made the placement
explanation.py      why this fast and no faster         what_if.py      other hardware
critical_path.py    what the step time consists of      loads.py        what devices do
waits.py            what devices wait for               tracks.py, arrivals.py  a step's parts
report/             one HTML page                       tensorboard.py  its graph page
chrome_trace.py     a trace to look at                  advice/         one device or several
"""
