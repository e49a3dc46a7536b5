//! What TLS to origins needs once: the certificate authorities of this system.

use std::fmt;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, RootCertStore};

/// Settings of all TLS connections to origins.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

/// Why there can't be TLS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no certificate authority is known, so no https origin can be verified{why}; install them (apt-get install ca-certificates), or name a file of them in SSL_CERT_FILE"
)]
pub struct TlsError {
    why: String,
}

impl Tls {
    /// Loads the certificate authorities that the system trusts, or those that SSL_CERT_FILE and SSL_CERT_DIR name.
    ///
    /// # Errors
    /// There is none, or none can be read.
    pub fn load() -> Result<Tls, TlsError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs); // one that is not understood takes nothing from the others
        if roots.is_empty() {
            let why = found.errors.first();
            let why = why.map(|error| format!(" ({error})")).unwrap_or_default();
            return Err(TlsError { why });
        }
        Ok(Tls::trusting(roots))
    }

    fn trusting(roots: RootCertStore) -> Tls {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has ciphers for all versions of TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut config = config;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Tls(Arc::new(config))
    }

    /// The client's side of a connection to this host, which its certificate has to name.
    ///
    /// # Errors
    /// The host is neither a name nor an IP address.
    pub fn connection(&self, host: &str) -> Result<UnbufferedClientConnection, rustls::Error> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| rustls::Error::General(format!("{host} is no name")))?;
        UnbufferedClientConnection::new(Arc::clone(&self.0), name)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// What an operator is told of a failed connection to this host.
pub fn told(error: &rustls::Error, host: &str) -> String {
    let rustls::Error::InvalidCertificate(why) = error else {
        return format!("TLS: {error}");
    };
    match why {
        CertificateError::UnknownIssuer => {
            "its certificate is from an authority that this system does not know: add that authority to the \
             system's certificates, or name a file of it in SSL_CERT_FILE"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("its certificate is not for {host}")
        }
        why => format!("its certificate is not accepted: {why}"),
    }
}
