package ssp

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"adbuffer/internal/syntax"
)

// maxCodedScan bounds the size of a compressed body that is decoded. A larger body counts as an ad.
// A document without an ad takes 50 to 500 bytes.
//
// It also bounds the cost of a hostile body. The worst case is not a large output, which maxScan
// bounds. It is tables: 10 bytes of deflate make the decoder build some, in 1.5 µs. With 2 KB, that
// costs no more than the longest search in 64 KB.
const maxCodedScan = 2 << 10

// hasCodedAd does the same as look, for a body with a content coding. A body that cannot be decoded
// completely within the bounds counts as an ad.
func (n NoBidBody) hasCodedAd(coding, body []byte) (bool, noBidReason) {
	if len(body) > maxCodedScan {
		return true, nbrNone
	}
	pool := decodersOf(coding)
	if pool == nil {
		return true, nbrNone
	}
	d := pool.Get().(decoder)
	defer pool.Put(d)
	out := scanBuffers.Get().(*[maxScan + 1]byte)
	defer scanBuffers.Put(out)
	plain, whole := d.decode(out[:], body)
	if !whole {
		return true, nbrNone
	}
	return n.look(plain)
}

// scanBuffers have one byte more than the search limit, to detect a longer body.
var scanBuffers = sync.Pool{New: func() any { return new([maxScan + 1]byte) }}

// decoder decodes bodies. It is reused.
type decoder interface {
	// decode decodes body into dst. whole reports that it decoded the complete body without errors.
	decode(dst, body []byte) (plain []byte, whole bool)
}

var (
	gzips    = sync.Pool{New: func() any { return new(gzipDecoder) }}
	deflates = sync.Pool{New: func() any { return newDeflateDecoder() }}
	brotlis  = sync.Pool{New: func() any { return new(brotliDecoder) }}
	zstds    = sync.Pool{New: func() any { return newZstdDecoder() }}
)

// decodersOf returns the decoders of a content coding, or nil for an unknown coding or several
// codings. RFC 9110, section 8.4.1; RFC 7932; RFC 8878.
func decodersOf(coding []byte) *sync.Pool {
	switch {
	case syntax.EqualFold(coding, "gzip"), syntax.EqualFold(coding, "x-gzip"):
		return &gzips
	case syntax.EqualFold(coding, "deflate"):
		return &deflates
	case syntax.EqualFold(coding, "br"):
		return &brotlis
	case syntax.EqualFold(coding, "zstd"):
		return &zstds
	}
	return nil
}

func readWhole(r io.Reader, dst []byte) (plain []byte, whole bool) {
	n := 0
	for n < len(dst) {
		m, err := r.Read(dst[n:])
		n += m
		if err != nil {
			return dst[:n], err == io.EOF //nolint:errorlint // decoders return it unwrapped
		}
	}
	return dst[:n], false
}

type gzipDecoder struct {
	z    gzip.Reader
	from bytes.Reader
}

func (d *gzipDecoder) decode(dst, body []byte) ([]byte, bool) {
	d.from.Reset(body)
	defer d.from.Reset(nil)
	if d.z.Reset(&d.from) != nil {
		return nil, false
	}
	return readWhole(&d.z, dst)
}

// deflateDecoder decodes HTTP's deflate, which is the format of zlib, and raw deflate, which some
// servers send instead.
type deflateDecoder struct {
	wrapped, raw io.Reader // both are a flate.Resetter
	from         bytes.Reader
}

func newDeflateDecoder() *deflateDecoder {
	// NewReader reads the header at once, so it gets an empty body.
	wrapped, err := zlib.NewReader(strings.NewReader("\x78\x9c\x03\x00\x00\x00\x00\x01"))
	if err != nil {
		panic("BUG: an empty body in the format of zlib: " + err.Error())
	}
	return &deflateDecoder{wrapped: wrapped, raw: flate.NewReader(strings.NewReader(""))}
}

func (d *deflateDecoder) decode(dst, body []byte) ([]byte, bool) {
	d.from.Reset(body)
	defer d.from.Reset(nil)
	r := d.raw
	if hasZlibHeader(body) {
		r = d.wrapped
	}
	if r.(flate.Resetter).Reset(&d.from, nil) != nil {
		return nil, false
	}
	return readWhole(r, dst)
}

// hasZlibHeader reports whether b begins with method 8 and a valid checksum. RFC 1950, section 2.2.
func hasZlibHeader(b []byte) bool {
	return len(b) >= 2 && b[0]&0x0f == 8 && (uint(b[0])<<8|uint(b[1]))%31 == 0
}

type brotliDecoder struct {
	z    brotli.Reader
	from bytes.Reader
	copy [maxCodedScan]byte
}

// decode bounds the window to 256 KB. The decoder takes memory, and decodes ahead, for as much as a
// body claims. Its window may be 16 MB, and 13 bytes cost 2 ms. The first byte states the window. A
// smaller window changes nothing until that many bytes are decoded. RFC 7932, section 9.1.
func (d *brotliDecoder) decode(dst, body []byte) ([]byte, bool) {
	b := d.copy[:copy(d.copy[:], body)]
	if len(b) > 0 && b[0]&1 == 1 && b[0]&0x0e != 0 {
		b[0] = b[0]&^0x0f | 0x03 // from 18 to 24 bits to 18
	}
	d.from.Reset(b)
	d.z.Reset(&d.from) //nolint:errcheck // it never fails
	plain, whole := readWhole(&d.z, dst)
	return plain, whole && d.from.Len() == 0
}

type zstdDecoder struct{ z *zstd.Decoder }

func newZstdDecoder() *zstdDecoder {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
	if err != nil {
		panic("BUG: the options of a decoder: " + err.Error())
	}
	return &zstdDecoder{z}
}

// maxZstdWindow is the largest window that HTTP allows. RFC 9659.
const maxZstdWindow = 8 << 20

func (d *zstdDecoder) decode(dst, body []byte) ([]byte, bool) {
	plain, err := d.z.DecodeAll(body, dst[:0])
	return plain, err == nil
}
