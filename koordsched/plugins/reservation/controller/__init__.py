"""What runs for Reservations beside scheduling, while this scheduler leads (reservation spec 3.8, 3.9).

`loops` runs it all; `reconciler` brings one Reservation up to date: its status (`status`), its end (`expiry`), the pods
that used one that is gone (`release`); `collection` deletes those that are long over. `places` knows where Reservations
are, a `WorkQueue` which are to be looked at. `metrics` is what Prometheus reads.
"""
