"""How to trust a server and how to be known to it."""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from opsdk.client._credentials import Certificate
from opsdk.client.kubeconfig import ClientConfig
from opsdk.errors import ConfigurationError

__all__ = ["load_certificate", "ssl_context_of"]


def ssl_context_of(config: ClientConfig) -> ssl.SSLContext:
    """The TLS context for a configuration. Data in the configuration goes before files, as with kubectl.

    Raises:
        ConfigurationError: A certificate or key is missing or cannot be read; the text names the field.
    """
    context = _trust(config)
    _identify(config, context)
    return context


def _decoded(config: ClientConfig, field: str, data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError):
        raise ConfigurationError(f"{config.source}: {field} is not base64") from None


def _trust(config: ClientConfig) -> ssl.SSLContext:
    cluster = config.cluster
    if cluster.insecure:
        if cluster.certificate_auth or cluster.certificate_auth_data:
            raise ConfigurationError(
                f"{config.source}: cluster.insecure-skip-tls-verify and a certificate-authority exclude each other"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if cluster.certificate_auth_data:
        field = "cluster.certificate-authority-data"
        pem = _decoded(config, field, cluster.certificate_auth_data)
        try:
            return ssl.create_default_context(cadata=pem.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
            raise ConfigurationError(f"{config.source}: {field} holds no certificate in PEM") from error
    if cluster.certificate_auth:
        try:
            return ssl.create_default_context(cafile=cluster.certificate_auth)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigurationError(
                f"{config.source}: cluster.certificate-authority {cluster.certificate_auth}: {_why(error)}"
            ) from error
    import httpx2  # a tenth of a start, which clusters with an authority of their own need not pay

    return httpx2.create_ssl_context()


def _identify(config: ClientConfig, context: ssl.SSLContext) -> None:
    user = config.user
    if not (user.client_cert_data or user.client_cert):
        if user.client_key_data or user.client_key:
            raise ConfigurationError(f"{config.source}: user.client-key is given without a client-certificate")
        return
    if not (user.client_key_data or user.client_key):
        raise ConfigurationError(f"{config.source}: user.client-certificate is given without a client-key")
    with _readable_by_us_only() as folder:
        certificate, key = user.client_cert, user.client_key
        if user.client_cert_data:
            certificate = str(folder / "crt")
            Path(certificate).write_bytes(_decoded(config, "user.client-certificate-data", user.client_cert_data))
        if user.client_key_data:
            key = str(folder / "key")
            Path(key).write_bytes(_decoded(config, "user.client-key-data", user.client_key_data))
        try:
            context.load_cert_chain(certificate or "", key)
        except OSError as error:
            raise ConfigurationError(
                f"{config.source}: user.client-certificate and user.client-key: {_why(error)}"
            ) from error


def load_certificate(context: ssl.SSLContext, certificate: Certificate, *, source: str) -> None:
    """Connect with this certificate from now on; connections that are open keep theirs.

    Raises:
        ConfigurationError: It cannot be used.
    """
    with _readable_by_us_only() as folder:
        chain, key = folder / "crt", folder / "key"
        chain.write_text(certificate.certificate, encoding="utf-8")
        key.write_text(certificate.key, encoding="utf-8")
        try:
            context.load_cert_chain(chain, key)
        except OSError as error:
            raise ConfigurationError(f"{source}: the client certificate of the exec plugin: {_why(error)}") from error


@contextmanager
def _readable_by_us_only() -> Generator[Path]:
    """A folder for certificates of our own, which the ssl module reads from files only."""
    with tempfile.TemporaryDirectory(prefix="opsdk-") as folder:
        yield Path(folder)


def _why(error: OSError) -> str:
    return f"not usable: {error.reason}" if isinstance(error, ssl.SSLError) else error.strerror or str(error)
