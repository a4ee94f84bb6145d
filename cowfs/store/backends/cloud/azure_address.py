"""URLs of Azure: abfs, abfss and az name one container, unless both URLs name accounts and these
differ; and the account that the environment adds."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from cowfs.format.store_url import StoreUrl


class AzureAddress:
    def is_same_root(self, one: StoreUrl, other: StoreUrl) -> bool:
        (container, account), (other_container, other_account) = (_split(each) for each in (one, other))
        return container == other_container and (account == other_account or not account or not other_account)

    def complete(self, place: StoreUrl) -> StoreUrl:
        """With the account of AZURE_STORAGE_CONNECTION_STRING or AZURE_STORAGE_ACCOUNT_NAME."""
        if "@" in place.authority or not (account := _environment_account()):
            return place
        return StoreUrl.parse(str(replace(place, authority=f"{place.authority}@{account}")))


def _split(place: StoreUrl) -> tuple[str, str]:
    """Container and account; "" where the URL names no account."""
    container, _, host = place.authority.partition("@")
    return container, host.partition(".")[0]


def _environment_account() -> str | None:
    """The account that Azure's tools use when none is given."""
    connection = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    found = re.search(r"(?:^|;)\s*AccountName=([^;]*)", connection, re.IGNORECASE)
    if connection:  # it takes precedence, even if it names no account
        return found[1] if found else None
    return os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
