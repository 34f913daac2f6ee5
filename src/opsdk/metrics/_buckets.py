"""Histogram buckets: those that existing dashboards were made for, and ours."""

from __future__ import annotations

from typing import Final

RECONCILE_SECONDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0),
    *(15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0),
)
"""controller-runtime's for `controller_runtime_reconcile_time_seconds`."""

WORKQUEUE_SECONDS: Final = tuple(float(f"1e{exponent}") for exponent in range(-8, 4))
"""controller-runtime's for the workqueue: twelve decades from 10 ns."""

REST_CLIENT_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Those of Kubernetes' own components for `rest_client_request_duration_seconds`."""

DWELL_SECONDS: Final = (
    *(0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0),
    *(3_600.0, 4 * 3_600.0, 86_400.0, 7 * 86_400.0, 30 * 86_400.0),
)
"""From a tenth of a second to a month: states are lived in."""
