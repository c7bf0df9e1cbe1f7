// Package http2codec holds the parts that both sides of an HTTP/2 connection share: frames and
// their reader, header blocks (HPACK), settings, flow-control windows, errors and the bounds of floods. RFC 9113 and RFC 7541.
//
// Frame types, error codes and settings come from golang.org/x/net/http2, Huffman coding and the static table from
// its package hpack. Frames are parsed in place, and appended to a buffer of the connection. Header blocks are read
// and written as bytes. With the Framer, Decoder and Encoder of the library, an exchange would copy each frame, hash
// each field and allocate a string for each new value. BenchmarkLibraryCodec and BenchmarkCodec, in package
// ssp/http2, compare them.
package http2codec
