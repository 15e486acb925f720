"""DeviceShare for one pod and one node, computed from scratch: deviceshare spec 2.3, 3.1 to 3.9 and 4.1.

Plain dicts and loops. Amounts are whole numbers: {resource name: amount}. No reservations.
"""
