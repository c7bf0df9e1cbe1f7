package cpushare

import (
	"crypto/tls"
	"time"
)

// Handshake takes the turns of a TLS handshake with a peer. It holds a turn from the arrival of a
// record until the handshake waits for the peer again, writes, or ends. So no handshake waits for
// another peer. One goroutine at a time may use it.
type Handshake struct {
	// Waited is for how long the handshake has waited for turns.
	Waited time.Duration

	share   *Share
	work    Work
	party   Party
	gone    <-chan struct{}
	records records
	turn    Turn
	// computing means that the handshake holds turn.
	computing bool
}

// NewHandshake returns a handshake with a peer of p. When gone is closed, the handshake waits for no
// turn any more; nil for never.
func (s *Share) NewHandshake(w Work, p Party, gone <-chan struct{}) *Handshake {
	return &Handshake{share: s, work: w, party: p, gone: gone}
}

// Arrived is called with all bytes that the handshake reads. If they complete a record, it calls
// Begin.
func (h *Handshake) Arrived(b []byte, deadline time.Time) error {
	if !h.records.add(b) {
		return nil
	}
	return h.Begin(deadline)
}

// Begin acquires a turn, as Share.Acquire does, unless the handshake holds one. If the peer has gone,
// it returns net.ErrClosed.
func (h *Handshake) Begin(deadline time.Time) error {
	if h.computing || h.share == nil {
		h.computing = true
		return nil
	}
	party := h.party
	if h.records.hello.costly {
		party = party.Costly()
	}
	began := time.Now()
	var err error
	h.turn, err = h.share.acquire(h.work, party, deadline, h.gone)
	h.Waited += time.Since(began)
	h.computing = err == nil
	return err
}

// Yield releases the turn, and reports whether one was held.
func (h *Handshake) Yield() (held bool) {
	held = h.computing
	h.computing = false
	h.turn.Release()
	return held
}

// records finds the ClientHellos in the bytes of a client.
type records struct {
	header uint64 // the last bytes of a record's header that has not arrived whole
	known  int    // bytes of the header that have arrived
	left   int    // bytes of the current record that have not arrived
	kind   byte   // of the current record
	hello  clientHello
}

const (
	recordHeader    = 5
	handshakeRecord = 22
)

// add reports whether a record ends in b.
func (r *records) add(b []byte) (complete bool) {
	for len(b) > 0 {
		if r.known < recordHeader {
			r.header = r.header<<8 | uint64(b[0])
			r.known++
			b = b[1:]
			if r.known == recordHeader {
				r.kind, r.left = byte(r.header>>32), int(r.header&0xffff)
			}
		}
		n := min(len(b), r.left)
		if r.known == recordHeader && r.kind == handshakeRecord {
			r.hello.add(b[:n])
		}
		b = b[n:]
		r.left -= n
		if r.known == recordHeader && r.left == 0 {
			r.known, complete = 0, true
		}
	}
	return complete
}

// clientHello scans handshake messages for the ClientHello (RFC 8446, section 4.1.2), byte by byte. It
// holds no bytes, and checks nothing: crypto/tls refuses what is malformed.
type clientHello struct {
	costly bool // the key exchange that the last ClientHello asks for takes far more CPU than usual

	next   part
	number uint32 // the bytes of next that have arrived
	want   int    // bytes of next that have not arrived; 0 = none of a message has arrived
	skip   int    // bytes before next
	left   int    // bytes of the message
	list   int    // bytes of the extension's list
	groups groupSet
	shares groupSet
}

// part is a part of a message that clientHello reads.
type part uint8

const (
	messageHeader part = iota // type and length
	sessionID                 // its length, as with the next three
	cipherSuites
	compressionMethods
	extensions
	extension // type and length
	groupList // length
	group
	shareList // length
	share     // group and length
	noHello   // another message
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
			if h.want == 0 {
				h.want = partSizes[messageHeader]
			}
			h.number = h.number<<8 | uint32(b[0])
			b = b[1:]
			if h.want--; h.want == 0 {
				h.begin(byte(h.number>>24), int(h.number&0xffffff))
			}
			continue
		}
		n := min(len(b), h.left)
		h.scan(b[:n])
		b = b[n:]
		if h.left -= n; h.left == 0 {
			h.end()
		}
	}
}

// begin begins a message.
func (h *clientHello) begin(kind byte, length int) {
	*h = clientHello{costly: h.costly, left: length}
	h.read(0, noHello)
	if kind == clientHelloMessage {
		h.read(versionAndRandom, sessionID)
	}
	if length == 0 {
		h.end()
	}
}

// end ends a message.
func (h *clientHello) end() {
	if h.next != noHello {
		h.costly = h.groups.chosen(h.shares)&costlyGroups != 0 || (h.groups&^hybridGroups).chosen(0)&costlyGroups != 0
	}
	*h = clientHello{costly: h.costly}
}

// read makes p the next part, behind skip bytes.
func (h *clientHello) read(skip int, p part) {
	h.skip, h.next, h.number, h.want = skip, p, 0, partSizes[p]
}

// scan scans bytes of one message.
func (h *clientHello) scan(b []byte) {
	for len(b) > 0 && h.next != noHello {
		if h.skip > 0 {
			n := min(len(b), h.skip)
			b = b[n:]
			h.skip -= n
			continue
		}
		h.number = h.number<<8 | uint32(b[0])
		b = b[1:]
		if h.want--; h.want == 0 {
			h.step(int(h.number))
		}
	}
}

// step handles a part that has arrived.
func (h *clientHello) step(n int) {
	switch h.next {
	case sessionID:
		h.read(n, cipherSuites)
	case cipherSuites:
		h.read(n, compressionMethods)
	case compressionMethods:
		h.read(n, extensions)
	case extensions:
		h.read(0, extension)
	case extension:
		switch kind, length := n>>16, n&0xffff; {
		case kind == supportedGroups && length >= 2:
			h.read(0, groupList)
		case kind == keyShare && length >= 2:
			h.read(0, shareList)
		default:
			h.read(length, extension)
		}
	case groupList:
		h.list = n
		h.readList(0, group)
	case group:
		h.groups |= setOf(n)
		h.list -= 2
		h.readList(0, group)
	case shareList:
		h.list = n
		h.readList(0, share)
	case share:
		h.shares |= setOf(n >> 16)
		h.list -= 4 + n&0xffff
		h.readList(n&0xffff, share)
	}
}

// readList makes p, a member of the current list, the next part, or what follows the list.
func (h *clientHello) readList(skip int, p part) {
	if h.list >= partSizes[p] {
		h.read(skip, p)
	} else {
		h.read(skip+max(h.list, 0), extension)
	}
}

// groupSet is a set of the groups that crypto/tls has: bit i is knownGroups[i].
type groupSet uint16

// knownGroups are in the order in which crypto/tls prefers them.
var knownGroups = [...]tls.CurveID{tls.X25519MLKEM768, tls.SecP256r1MLKEM768, tls.SecP384r1MLKEM1024, tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}

const (
	hybridGroups groupSet = 0b0000111
	// costlyGroups are those of P-384 and P-521. Their key exchange takes 10 to 30 times as much CPU as
	// that of the other groups.
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

// chosen returns the group of s that crypto/tls chooses for TLS 1.3: a hybrid group if the client
// supports one, and of those or of the others the first for which the client has sent a share, else the
// first.
func (s groupSet) chosen(shares groupSet) groupSet {
	if s&hybridGroups != 0 {
		s &= hybridGroups
	}
	if s&shares != 0 {
		s &= shares
	}
	return s & -s
}
