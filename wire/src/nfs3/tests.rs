mod coding;
mod laws;
mod recorded;
