//! Handshakes between both sides over loopback: who is believed, who is not and why, and what a changed file does.

use berth_tls::{Certificate, Connector, Fingerprint, Source, TlsError, Trust};
use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

fn made(folder: &Path, names: &[&str]) -> Source {
    Source::Made { folder: folder.to_owned(), names: names.iter().map(|name| (*name).to_owned()).collect() }
}

/// Greets everybody who shakes hands; gives the address.
async fn serve(certificate: &Arc<Certificate>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let acceptor = certificate.acceptor().expect("it can be used");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    let _ = stream.write_all(b"hello").await;
                    let _ = stream.shutdown().await;
                }
            });
        }
    });
    address
}

/// Shakes hands and listens.
async fn greeting(at: std::net::SocketAddr, host: &str, trust: &Trust) -> Result<String, TlsError> {
    let stream = TcpStream::connect(at).await.expect("it listens");
    let mut stream = Connector::new(trust)?.connect(host, stream).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.map_err(TlsError::Handshake)?;
    Ok(text)
}

#[tokio::test]
async fn one_that_was_made_is_believed_by_its_fingerprint_or_as_its_own_authority() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().join("tls");
    let source = made(&home, &["localhost", "127.0.0.1"]);
    let certificate = Certificate::open(source.clone()).expect("it is made");
    let at = serve(&certificate).await;
    let known = certificate.fingerprint();
    assert_eq!(greeting(at, "elsewhere", &Trust::Fingerprint(known)).await.expect("is believed"), "hello");
    let own = Trust::of_file(&home.join("certificate.pem")).expect("is read");
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(greeting(at, host, &own).await.expect(host), "hello");
    }
    let other = greeting(at, "elsewhere", &own).await.expect_err("it is for other names").to_string();
    assert!(other.contains("other names than elsewhere"), "{other}");

    match greeting(at, "localhost", &Trust::System).await.expect_err("nobody vouches for it") {
        TlsError::Untrusted { fingerprint, .. } => assert_eq!(fingerprint, Some(known)),
        error => panic!("{error}"),
    }
    let strange: Fingerprint = "0".repeat(64).parse().expect("a fingerprint");
    match greeting(at, "localhost", &Trust::Fingerprint(strange)).await.expect_err("it is another") {
        TlsError::Another { trusted, found } => assert_eq!((trusted, found), (strange, known)),
        error => panic!("{error}"),
    }

    let again = Certificate::open(source).expect("it is there");
    assert_eq!(again.fingerprint(), known, "it is made once");
    let mode = fs::metadata(home.join("key.pem")).expect("a key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the key is for its owner alone");
}

#[tokio::test]
async fn a_changed_file_is_taken_up_and_a_wrong_one_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    let own = Certificate::open(made(&old, &["localhost"])).expect("it is made");
    let next = Certificate::open(made(&new, &["localhost"])).expect("it is made");
    let files = [folder.path().join("certificate"), folder.path().join("key")];
    let copy = |from: &Path, name: &str, to: &Path| {
        fs::copy(from.join(name), to).expect("is copied");
    };
    copy(&old, "certificate.pem", &files[0]);
    copy(&old, "key.pem", &files[1]);
    let source = Source::Files { certificate: files[0].clone(), key: files[1].clone() };
    let certificate = Certificate::open(source).expect("it is read");
    let at = serve(&certificate).await;
    assert!(!certificate.look_again().expect("nothing changed"));

    copy(&new, "certificate.pem", &files[0]);
    let half = certificate.look_again().expect_err("its key is not there yet").to_string();
    assert!(half.contains("this is not the key of the certificate in"), "{half}");
    assert!(!certificate.look_again().expect("it is told once"));
    let trust = Trust::Fingerprint(own.fingerprint());
    greeting(at, "localhost", &trust).await.expect("the old one goes on");

    copy(&new, "key.pem", &files[1]);
    assert!(certificate.look_again().expect("it is whole now"));
    greeting(at, "localhost", &Trust::Fingerprint(next.fingerprint())).await.expect("the new one is shown");
    greeting(at, "localhost", &trust).await.expect_err("the old one is not shown any more");

    fs::write(&files[0], "nonsense").expect("is written");
    assert!(certificate.look_again().expect_err("no certificate").to_string().contains("no certificate"));
    fs::remove_file(&files[1]).expect("is removed");
    assert!(matches!(certificate.look_again(), Err(TlsError::Unreadable { .. })));
    assert_eq!(certificate.fingerprint(), next.fingerprint());
}

#[tokio::test]
async fn who_does_not_speak_tls_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("somebody calls");
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    });
    let error = greeting(at, "localhost", &Trust::System).await.expect_err("it is plain");
    assert!(matches!(error, TlsError::NotTls), "{error}");
}

#[test]
fn a_file_without_a_certificate_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ca.pem");
    assert!(Trust::of_file(&path).expect_err("it is not there").to_string().contains("cannot be read"));
    fs::write(&path, "nothing").expect("is written");
    let refused = Trust::of_file(&path).expect_err("it holds none").to_string();
    assert!(refused.contains("ca.pem") && refused.contains("no certificate"), "{refused}");
}
