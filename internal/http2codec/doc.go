// Package http2codec is what both sides of an HTTP/2 connection share: frames,
// header blocks (HPACK), settings, errors and the bounds of floods. RFC 9113 and
// RFC 7541.
//
// Frame types, error codes and settings come from golang.org/x/net/http2,
// Huffman coding and the static table from its hpack. Frames are parsed in
// place, and written by hand into a buffer of the connection. Header blocks are
// read and written as bytes: with Framer, and hpack's Decoder and Encoder, an
// exchange costs a copy of each frame, a hash of each field and a string for each
// new value (BenchmarkLibraryCodec beside BenchmarkCodec, in package http2).
package http2codec
