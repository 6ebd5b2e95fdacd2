"""Steps that are run: how long they take under a placement, on real devices."""
