"""A queue of keys with at most one worker a key, delays, two priorities and rate limits.

Keys, not events: whoever leases a key looks at the world as it is then.
"""

from opsdk.workqueue.metrics import WorkQueueMetrics
from opsdk.workqueue.priority import Priority
from opsdk.workqueue.queue import WorkQueue
from opsdk.workqueue.ratelimit import (
    ExponentialBackoff,
    LongestOf,
    RateLimiter,
    TokenBucket,
    default_rate_limiter,
)

__all__ = [
    "ExponentialBackoff",
    "LongestOf",
    "Priority",
    "RateLimiter",
    "TokenBucket",
    "WorkQueue",
    "WorkQueueMetrics",
    "default_rate_limiter",
]
