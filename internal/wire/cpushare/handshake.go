package cpushare

import (
	"crypto/tls"
	"time"
)

// Handshake acquires turns for a TLS handshake with a peer. It holds a turn from the arrival of a record until the
// handshake waits for the peer again, writes, or ends. So no turn is held while a peer is waited for. One goroutine
// at a time may use a Handshake.
type Handshake struct {
	// Waited is the total time for which the handshake has waited for turns.
	Waited time.Duration

	share      *Share
	work       Work
	party      Party
	peerClosed <-chan struct{}
	records    records
	turn       Turn
	// holdsTurn means that turn is valid, and not yet released.
	holdsTurn bool
}

// NewHandshake returns a handshake with a peer of party p. When peerClosed is closed, the handshake stops waiting for
// a turn; peerClosed may be nil.
func (s *Share) NewHandshake(w Work, p Party, peerClosed <-chan struct{}) *Handshake {
	return &Handshake{share: s, work: w, party: p, peerClosed: peerClosed}
}

// Arrived must be called with all bytes that the handshake reads. If they complete a record, it calls Acquire.
func (h *Handshake) Arrived(b []byte, deadline time.Time) error {
	if !h.records.add(b) {
		return nil
	}
	return h.Acquire(deadline)
}

// Acquire acquires a turn, as Share.Acquire does, unless the handshake holds a turn already. It returns net.ErrClosed
// if peerClosed is closed.
func (h *Handshake) Acquire(deadline time.Time) error {
	if h.holdsTurn || h.share == nil {
		h.holdsTurn = true
		return nil
	}
	party := h.party
	if h.records.hello.costly {
		party = party.Costly()
	}
	start := time.Now()
	var err error
	h.turn, err = h.share.acquire(h.work, party, deadline, h.peerClosed)
	h.Waited += time.Since(start)
	h.holdsTurn = err == nil
	return err
}

// Release releases the turn. It reports whether a turn was held.
func (h *Handshake) Release() (held bool) {
	held = h.holdsTurn
	h.holdsTurn = false
	h.turn.Release()
	return held
}

// records splits the bytes of a client into TLS records, and passes handshake records to hello.
type records struct {
	header      uint64 // the bytes of the current record's header that have arrived
	headerBytes int    // how many bytes of that header have arrived
	recordLeft  int    // how many bytes of the current record have not arrived
	kind        byte   // type of the current record
	hello       clientHello
}

const (
	recordHeader    = 5
	handshakeRecord = 22
)

// add scans the next bytes, and reports whether a record ends in them.
func (r *records) add(b []byte) (complete bool) {
	for len(b) > 0 {
		if r.headerBytes < recordHeader {
			r.header = r.header<<8 | uint64(b[0])
			r.headerBytes++
			b = b[1:]
			if r.headerBytes == recordHeader {
				r.kind, r.recordLeft = byte(r.header>>32), int(r.header&0xffff)
			}
		}
		n := min(len(b), r.recordLeft)
		if r.headerBytes == recordHeader && r.kind == handshakeRecord {
			r.hello.add(b[:n])
		}
		b = b[n:]
		r.recordLeft -= n
		if r.headerBytes == recordHeader && r.recordLeft == 0 {
			r.headerBytes, complete = 0, true
		}
	}
	return complete
}

// clientHello scans handshake messages, byte by byte, for a ClientHello whose key exchange is costly. It keeps no
// bytes, and checks no syntax: crypto/tls refuses malformed messages. RFC 8446, section 4.1.2.
type clientHello struct {
	costly bool // the key exchange of the last ClientHello takes far more CPU than usual

	next        part
	value       uint32 // the bytes of part next that have arrived, as a number
	partLeft    int    // how many bytes of part next have not arrived; 0 = no byte of the message has arrived
	toSkip      int    // how many bytes to skip before part next
	messageLeft int    // how many bytes of the message have not arrived
	listLeft    int    // how many bytes of the current list have not arrived
	groups      groupSet
	shares      groupSet
}

// part is a part of a handshake message that clientHello reads.
type part uint8

const (
	messageHeader part = iota // type and length
	sessionID                 // the length only, as of the next three parts
	cipherSuites
	compressionMethods
	extensions
	extension // type and length
	groupList // length
	group
	shareList // length
	share     // group and length
	noHello   // the rest of a message that is ignored
)

var partSizes = [...]int{messageHeader: 4, sessionID: 1, cipherSuites: 2, compressionMethods: 1, extensions: 2, extension: 4, groupList: 2, group: 2, shareList: 2, share: 4, noHello: 1}

const (
	clientHelloMessage = 1
	versionAndRandom   = 34
	supportedGroups    = 10
	keyShare           = 51
)

// add scans the next bytes of handshake messages.
func (h *clientHello) add(b []byte) {
	for len(b) > 0 {
		if h.next == messageHeader {
			if h.partLeft == 0 {
				h.partLeft = partSizes[messageHeader]
			}
			h.value = h.value<<8 | uint32(b[0])
			b = b[1:]
			if h.partLeft--; h.partLeft == 0 {
				h.beginMessage(byte(h.value>>24), int(h.value&0xffffff))
			}
			continue
		}
		n := min(len(b), h.messageLeft)
		h.scan(b[:n])
		b = b[n:]
		if h.messageLeft -= n; h.messageLeft == 0 {
			h.endMessage()
		}
	}
}

// beginMessage begins a message of this type and length.
func (h *clientHello) beginMessage(kind byte, length int) {
	*h = clientHello{costly: h.costly, messageLeft: length}
	h.expect(0, noHello)
	if kind == clientHelloMessage {
		h.expect(versionAndRandom, sessionID)
	}
	if length == 0 {
		h.endMessage()
	}
}

// endMessage ends a message. If it was a ClientHello, endMessage sets costly.
func (h *clientHello) endMessage() {
	if h.next != noHello {
		h.costly = h.groups.chosen(h.shares)&costlyGroups != 0 || (h.groups&^hybridGroups).chosen(0)&costlyGroups != 0
	}
	*h = clientHello{costly: h.costly}
}

// expect makes p the next part, after skip bytes.
func (h *clientHello) expect(skip int, p part) {
	h.toSkip, h.next, h.value, h.partLeft = skip, p, 0, partSizes[p]
}

// scan scans bytes of one message.
func (h *clientHello) scan(b []byte) {
	for len(b) > 0 && h.next != noHello {
		if h.toSkip > 0 {
			n := min(len(b), h.toSkip)
			b = b[n:]
			h.toSkip -= n
			continue
		}
		h.value = h.value<<8 | uint32(b[0])
		b = b[1:]
		if h.partLeft--; h.partLeft == 0 {
			h.step(int(h.value))
		}
	}
}

// step handles a part that has arrived.
func (h *clientHello) step(n int) {
	switch h.next {
	case sessionID:
		h.expect(n, cipherSuites)
	case cipherSuites:
		h.expect(n, compressionMethods)
	case compressionMethods:
		h.expect(n, extensions)
	case extensions:
		h.expect(0, extension)
	case extension:
		switch kind, length := n>>16, n&0xffff; {
		case kind == supportedGroups && length >= 2:
			h.expect(0, groupList)
		case kind == keyShare && length >= 2:
			h.expect(0, shareList)
		default:
			h.expect(length, extension)
		}
	case groupList:
		h.listLeft = n
		h.expectMember(0, group)
	case group:
		h.groups |= setOf(n)
		h.listLeft -= 2
		h.expectMember(0, group)
	case shareList:
		h.listLeft = n
		h.expectMember(0, share)
	case share:
		h.shares |= setOf(n >> 16)
		h.listLeft -= 4 + n&0xffff
		h.expectMember(n&0xffff, share)
	}
}

// expectMember makes p, a member of the current list, the next part after skip bytes. At the end of the list the next
// part is an extension.
func (h *clientHello) expectMember(skip int, p part) {
	if h.listLeft >= partSizes[p] {
		h.expect(skip, p)
	} else {
		h.expect(skip+max(h.listLeft, 0), extension)
	}
}

// groupSet is a set of the groups that crypto/tls has: bit i is knownGroups[i].
type groupSet uint16

// knownGroups lists the groups of crypto/tls in its order of preference.
var knownGroups = [...]tls.CurveID{tls.X25519MLKEM768, tls.SecP256r1MLKEM768, tls.SecP384r1MLKEM1024, tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}

const (
	hybridGroups groupSet = 0b0000111
	// costlyGroups are the groups on P-384 and P-521. Their key exchange takes 10 to 30 times as much CPU as that of
	// other groups.
	costlyGroups groupSet = 0b1100100
)

func setOf(id int) groupSet {
	for i, known := range knownGroups {
		if int(known) == id {
			return 1 << i
		}
	}
	return 0
}

// chosen returns the group that crypto/tls chooses for TLS 1.3, if s holds the groups that the client supports, and
// shares those for which it has sent a key share. A hybrid group is preferred to other groups, then a group with a
// key share, then the first group of knownGroups.
func (s groupSet) chosen(shares groupSet) groupSet {
	if s&hybridGroups != 0 {
		s &= hybridGroups
	}
	if s&shares != 0 {
		s &= shares
	}
	return s & -s
}
