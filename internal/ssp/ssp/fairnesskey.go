package ssp

import (
	"bytes"
	"hash/maphash"
	"strings"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
)

// FairnessKey says which part of a request decides whose share of the places it uses, while requests
// wait for them: server.fairness.key.
type FairnessKey struct {
	header, query string
	member        *openrtb.Finder // nil: no member of the body. Without any of the three it is the client's address.
}

// NewFairnessKey returns the FairnessKey of a valid server.fairness.key, nil for "".
func NewFairnessKey(key string) *FairnessKey {
	from, name, _ := strings.Cut(key, ":")
	switch from {
	case "client_ip":
		return new(FairnessKey)
	case "header":
		return &FairnessKey{header: name}
	case "query":
		return &FairnessKey{query: name}
	case "openrtb":
		return &FairnessKey{member: openrtb.NewFinder(strings.Split(name[1:], "/"))}
	default:
		return nil
	}
}

// Value returns the value of r's key as it came; empty if r has none, and for a client's address.
func (k *FairnessKey) Value(r *Request) []byte {
	switch {
	case k.header != "":
		value, _ := r.Fields.Lookup(k.header)
		return value
	case k.query != "":
		return queryValue(r.Query, k.query)
	case k.member != nil && r.Fields.ContentEncoding() == nil:
		start, end, _ := k.member.Find(r.Body)
		return r.Body[start:end]
	default:
		return nil
	}
}

// queryValue returns the value of the first parameter with this name. Nothing is decoded.
func queryValue(query []byte, name string) []byte {
	for len(query) > 0 {
		param, rest, _ := bytes.Cut(query, []byte("&"))
		if is, value, _ := bytes.Cut(param, []byte("=")); string(is) == name {
			return value
		}
		query = rest
	}
	return nil
}

// fairSeed prevents that a client chooses its fair queues.
var fairSeed = maphash.MakeSeed()

// FairKey implements exchange.Keyer. All requests without a value have the same key.
func (r *Request) FairKey() uint64 {
	k := r.Fairness
	if *k == (FairnessKey{}) {
		return r.Identity.Hash()
	}
	return maphash.Bytes(fairSeed, k.Value(r))
}

// keyer returns r if its FairKey counts, else nil.
func (r *Request) keyer() exchange.Keyer {
	if r.Fairness == nil {
		return nil
	}
	return r
}
