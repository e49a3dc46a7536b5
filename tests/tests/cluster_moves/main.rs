//! Connections that move between the nodes of a cluster while clients use them: whatever happens to the nodes, a client sees one
//! server and right bytes. Needs root and a build with BPF.

mod clients;
mod ends;
mod forged;
mod gone;
mod lost;
mod requests;
mod scene;
