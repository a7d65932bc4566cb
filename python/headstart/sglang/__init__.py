"""Parts for SGLang, and the plugin that tells SGLang of the eviction policies.

`storage` and `radix` need SGLang and torch; the other modules import without them.
"""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from .._native import POLICIES

if TYPE_CHECKING:
    from .radix import HeadstartRadixCache

logger = logging.getLogger("sglang.headstart")

NAME = "headstart"
DEFAULT_POLICY = "hazard"


def register() -> None:
    """Names the trees for `--radix-cache-backend`. SGLang calls it in each of its processes.

    `headstart-NAME` has the policy NAME; `headstart` has the policy and options of the variable
    HEADSTART_POLICY, or `hazard`. A second call changes nothing.
    """
    from sglang.srt.mem_cache import registry

    names = {NAME: None} | {f"{NAME}-{policy}": policy for policy in POLICIES}
    known = registry.registered_radix_cache_backends()
    for name, policy in names.items():
        if name not in known:
            registry.register_radix_cache_backend(name, partial(radix_cache, policy))


def radix_cache(policy: str | None, context: Any) -> HeadstartRadixCache:
    """A tree for SGLang's `TreeCacheBuildContext`. `ValueError`: an option without support."""
    from .radix import HeadstartRadixCache

    params = context.params
    unsupported = {
        "a hierarchical cache": context.enable_hierarchical_cache,
        "sliding windows": context.is_hybrid_swa,
        "pipeline parallelism": params.pp_size > 1,
        "context parallelism": params.attn_cp_size > 1,
    }
    if names := [name for name, is_set in unsupported.items() if is_set]:
        raise ValueError(f"the radix cache of headstart does not support {', '.join(names)}")
    policy = policy or os.environ.get("HEADSTART_POLICY") or DEFAULT_POLICY
    logger.info("eviction policy of the radix cache: headstart %s", policy)
    return HeadstartRadixCache(params, policy)
