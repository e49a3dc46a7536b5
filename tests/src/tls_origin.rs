//! Origins of a gateway that answer by TLS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};

use crate::PATIENCE;

/// A certificate authority.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one.
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        Authority { pem, issuer }
    }

    /// Its certificate, for SSL_CERT_FILE.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for a host, until the end of a year.
    pub fn certificate(&self, host: &str, year: i32) -> Certificate {
        let mut params = CertificateParams::new([host.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 12, 31);
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        (signed.der().clone(), key)
    }
}

/// A certificate and its key.
pub type Certificate = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// An origin with these bytes at every path: as an object with ranges, or below `/stream`, as a response that ends with the
/// connection and may not be kept. Below `/cut`, that connection ends early and without a word.
pub struct TlsOrigin {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl TlsOrigin {
    /// Starts one that speaks this version of TLS. Its threads live as long as the process.
    pub fn start(
        (certificate, key): Certificate,
        version: &'static SupportedProtocolVersion,
        body: Arc<[u8]>,
    ) -> TlsOrigin {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .expect("a version of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key);
        let mut config = config.expect("a certificate and its key");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                let (config, body) = (Arc::clone(&config), Arc::clone(&body));
                thread::spawn(move || serve(stream, config, &body));
            }
        });
        TlsOrigin { port, connections }
    }

    /// Its URL, by this name.
    pub fn url(&self, host: &str) -> String {
        format!("https://{host}:{}", self.port)
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// Answers until the client leaves.
fn serve(stream: TcpStream, config: Arc<ServerConfig>, body: &[u8]) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let tls = ServerConnection::new(config).ok()?;
    let mut stream = BufReader::new(StreamOwned::new(tls, stream));
    while answer(&mut stream, body)? {}
    stream.get_mut().conn.send_close_notify();
    stream.get_mut().flush().ok()
}

/// Answers one request. Returns whether the connection goes on.
fn answer(stream: &mut BufReader<Stream>, body: &[u8]) -> Option<bool> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        (stream.by_ref().take(8192).read_line(&mut head).ok()? > 0).then_some(())?;
    }
    let out = stream.get_mut();
    if head.contains(" /stream") || head.contains(" /cut") {
        let start = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n";
        out.write_all(start.as_bytes()).ok()?;
        let whole = head.contains(" /stream");
        let part = if whole { body } else { &body[..body.len() / 2] };
        out.write_all(part).ok()?;
        out.flush().ok()?;
        return whole.then_some(false);
    }
    let range = head
        .lines()
        .find_map(|line| line.strip_prefix("Range: bytes="));
    let range = range.and_then(|range| {
        let (first, last) = range.split_once('-')?;
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some((first, last.min(body.len() - 1)))
    });
    let (status, part, more) = match range {
        Some((first, last)) => {
            let more = format!("Content-Range: bytes {first}-{last}/{}\r\n", body.len());
            ("206 Partial Content", &body[first..=last], more)
        }
        None => ("200 OK", body, String::new()),
    };
    let start = format!(
        "HTTP/1.1 {status}\r\nETag: \"x\"\r\nAccept-Ranges: bytes\r\nCache-Control: max-age=60\r\n\
         Content-Length: {}\r\n{more}\r\n",
        part.len()
    );
    out.write_all(start.as_bytes()).ok()?;
    if !head.starts_with("HEAD ") {
        out.write_all(part).ok()?;
    }
    out.flush().ok()?;
    Some(true)
}
