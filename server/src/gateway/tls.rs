//! What TLS to origins needs once: the certificate authorities of this system.

use std::fmt;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, InvalidMessage, OtherError, RootCertStore,
};

/// Settings of all TLS connections to origins.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

/// Why there can't be TLS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// No authority is known.
    #[error(
        "no certificate authority is known, so no https origin can be verified{0}; install them (apt-get install ca-certificates), or name a file of them in SSL_CERT_FILE"
    )]
    None(String),
    /// The file that is named is not there, or may not be read.
    #[error(
        "SSL_CERT_FILE names {file}, of which nothing can be read ({why}); correct it, or leave it out for the authorities that this system trusts"
    )]
    File {
        /// The file.
        file: String,
        /// What the kernel said.
        why: String,
    },
}

impl Tls {
    /// Loads the certificate authorities that the system trusts, or those that SSL_CERT_FILE and SSL_CERT_DIR name.
    ///
    /// # Errors
    /// There is none, none can be read, or the file that is named can't be.
    pub fn load() -> Result<Tls, TlsError> {
        if let Some(file) = std::env::var_os("SSL_CERT_FILE") {
            std::fs::File::open(&file).map_err(|error| TlsError::File {
                file: file.to_string_lossy().into_owned(),
                why: error.to_string(),
            })?;
        }
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs); // one that is not understood takes nothing from the others
        if roots.is_empty() {
            let why = found.errors.first();
            let why = why.map(|error| format!(" ({error})")).unwrap_or_default();
            return Err(TlsError::None(why));
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
        UnbufferedClientConnection::new(Arc::clone(&self.0), name_of(host)?)
    }

    /// The same for a thread that may wait.
    ///
    /// # Errors
    /// As there.
    pub fn blocking(&self, host: &str) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(Arc::clone(&self.0), name_of(host)?)
    }
}

fn name_of(host: &str) -> Result<ServerName<'static>, rustls::Error> {
    let name = ServerName::try_from(host.to_owned());
    name.map_err(|_| rustls::Error::General(format!("{host} is no name")))
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// What an operator is told of a failed connection to this host.
pub fn told(error: &rustls::Error, host: &str) -> String {
    let why = match error {
        rustls::Error::InvalidCertificate(why) => why,
        // What came is no record of TLS.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            return "it does not speak TLS: is it http://?".to_owned();
        }
        error => return format!("TLS: {error}"),
    };
    match why {
        // Of one that signed itself, webpki says the latter.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is not from an authority that this system knows: add that authority, or the certificate if it signed \
             itself, to the system's certificates, or name a file of it in SSL_CERT_FILE"
                .to_owned()
        }
        CertificateError::Other(other) if is_authority(other) => {
            "its certificate is that of an authority (CA:TRUE), which no server may have: make one for the server with CA:FALSE \
             (openssl req -x509 ... -addext basicConstraints=CA:FALSE), and name a file of it in SSL_CERT_FILE"
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

/// webpki's errors about a certificate come wrapped.
fn is_authority(other: &OtherError) -> bool {
    other.0.to_string() == "CaUsedAsEndEntity"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let told = |error| told(&error, "a.example");
        let plain = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert!(told(plain).contains("http://"));
        let ours = |why| rustls::Error::InvalidCertificate(why);
        for why in [
            CertificateError::UnknownIssuer,
            CertificateError::BadSignature,
            CertificateError::Other(OtherError(Arc::new(Wrapped))),
        ] {
            let told = told(ours(why));
            assert!(told.contains("SSL_CERT_FILE"), "{told}");
        }
    }

    /// As webpki's error is shown.
    #[derive(Debug)]
    struct Wrapped;

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("CaUsedAsEndEntity")
        }
    }

    impl std::error::Error for Wrapped {}
}
