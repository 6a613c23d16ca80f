import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from recovery.engines.served_model import serve_command
from recovery.engines.servers import KEY, Refused, Server, Unavailable
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.students import load_student
from tests.models import save_tiny
from tests.recovery.engines.small_server import SmallServer, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> SmallServer:
    return SmallServer(load_student(str(save_tiny(tmp_path_factory.mktemp("model"))), frozen=True))


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl, which makes the certificate, is not installed")
    folder.mkdir()
    signed, key = folder / "certificate.pem", folder / "key.pem"
    subject = ["-subj", "/CN=test", "-addext", f"subjectAltName={name}"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", *subject, "-keyout", str(key), "-out", str(signed)]
    subprocess.run(command, check=True, capture_output=True)
    return signed, key


def tls(signed: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed, key)
    return context


def test_a_certificate_of_an_unknown_authority_is_refused_and_accepted_once_that_is_named(
    server: SmallServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = certificate(tmp_path / "own", "IP:127.0.0.1"), certificate(tmp_path / "other", "IP:127.0.0.1")
    monkeypatch.setenv(KEY, "secret-key")
    with serving(server, tls=tls(*own)) as address:
        for authority in (None, other[0]):
            if authority:
                monkeypatch.setenv("SSL_CERT_FILE", str(authority))
            with pytest.raises(
                RecoverError, match=r"certificate of https://\S+ cannot be verified .* SSL_CERT_FILE\.$"
            ):
                Server(address).call("/health")
        assert server.paths == []  # no request, and so no key, was sent
        monkeypatch.setenv("SSL_CERT_FILE", str(own[0]))
        assert Server(address).call("/health") == "ok"


def test_another_host_is_refused(server: SmallServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signed, key = certificate(tmp_path / "own", "DNS:elsewhere.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(signed))
    with serving(server, tls=tls(signed, key)) as address, pytest.raises(RecoverError, match="cannot be verified"):
        Server(address).call("/health")


def test_a_server_without_tls_does_not_answer_at_https(server: SmallServer) -> None:
    with serving(server) as address, pytest.raises(Unavailable, match="SSL"):
        Server(address.replace("http:", "https:"), timeout=5.0).call("/health")


def test_a_key_from_a_file_has_no_line_end(server: SmallServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "key", "secret-key")
    monkeypatch.setenv(KEY, "secret-key\n")
    with serving(server) as address:
        assert Server(address).call("/health") == "ok"


@pytest.mark.parametrize("key", ["secret key", "secret\nkey", "geheimnisschlüssel"])
def test_what_is_no_key_is_refused_without_showing_it(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, key)
    with pytest.raises(RecoverError, match=f"The key in {KEY}") as refused:
        Server("http://127.0.0.1:1").call("/health")
    assert key not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_an_error_with_the_key_is_shown_without_it(server: SmallServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "secret-key")
    monkeypatch.setattr(server, "answer", lambda path, body: None)
    monkeypatch.setattr("tests.recovery.engines.small_server.MISSING", "No model for Bearer secret-key.")
    with serving(server) as address, pytest.raises(Refused, match=r"No model for Bearer …\.") as refused:
        Server(address).call("/v1/models")
    assert "secret" not in str(refused.value)


def test_a_printed_command_names_the_key_and_does_not_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "secret-key")
    command = str(serve_command(Server("http://127.0.0.1:8000"), str(BASE)))
    assert command.startswith(f'VLLM_API_KEY="${KEY}" vllm serve')
    assert "secret" not in command
