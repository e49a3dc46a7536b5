//! TLS 1.3 between nodes, with raw public keys (RFC 7250): each side shows its key, and takes no other than those of its peers.
//! There are no certificates, no authorities and no dates.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, Error, PeerIncompatible, ServerConfig, ServerConnection, SignatureScheme,
};

use super::key::{Key, PublicKey, of_spki, to_spki};

/// What both ends of a stream need.
#[derive(Clone, Debug)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    pinned: Arc<Pinned>,
}

impl Tls {
    /// For a node with this key and peers with these.
    ///
    /// # Errors
    /// The library refuses the key.
    pub fn new(key: &Key, peers: Vec<PublicKey>) -> Result<Tls, Error> {
        let provider = Arc::new(ring::default_provider());
        let pinned = Arc::new(Pinned {
            peers: RwLock::new(peers),
            provider: Arc::clone(&provider),
        });
        let shown = CertificateDer::from(to_spki(&key.public));
        let own = Arc::new(CertifiedKey::new(vec![shown], Arc::clone(&key.signing)));
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&pinned) as Arc<dyn ServerCertVerifier>)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                Arc::clone(&own),
            )));
        // A stream that is resumed would not show its key.
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::clone(&pinned) as Arc<dyn ClientCertVerifier>)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Tls {
            client: Arc::new(client),
            server: Arc::new(server),
            pinned,
        })
    }

    /// From now on these keys are taken, and no others. Streams that stand are not touched.
    pub fn trust(&self, peers: Vec<PublicKey>) {
        *self
            .pinned
            .peers
            .write()
            .unwrap_or_else(PoisonError::into_inner) = peers;
    }

    /// The end of a stream that this node opens.
    pub fn dial(&self, to: SocketAddr) -> Result<Connection, Error> {
        let name = ServerName::IpAddress(to.ip().into());
        ClientConnection::new(Arc::clone(&self.client), name).map(Connection::Client)
    }

    /// The end of a stream that another node opens.
    pub fn answer(&self) -> Result<Connection, Error> {
        ServerConnection::new(Arc::clone(&self.server)).map(Connection::Server)
    }
}

/// The key that the other end has shown, and has proved to have.
pub fn shown_key(tls: &Connection) -> Option<PublicKey> {
    of_spki(tls.peer_certificates()?.first()?)
}

/// The keys of the peers, and nothing else.
#[derive(Debug)]
struct Pinned {
    peers: RwLock<Vec<PublicKey>>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn check(&self, spki: &[u8]) -> Result<(), Error> {
        let key = of_spki(spki);
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        match key.is_some_and(|key| peers.contains(&key)) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        spki: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let spki = SubjectPublicKeyInfoDer::from(spki);
        verify_tls13_signature_with_raw_key(message, &spki, signed, algorithms)
    }
}

const fn no_tls12() -> Error {
    Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered)
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        spki: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(spki).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, spki, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        spki: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(spki).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, spki, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
