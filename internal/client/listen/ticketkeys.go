package listen

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/wire/handshake"
)

const (
	// ticketKeyRotation is how long a key encrypts new session tickets, until a new key takes over.
	ticketKeyRotation = 12 * time.Hour
	// maxTicketKeys is how many keys can decrypt tickets. So a ticket is valid for at least
	// (maxTicketKeys - 1) * ticketKeyRotation, and a key is dropped after maxTicketKeys * ticketKeyRotation.
	maxTicketKeys = 4
)

// TicketKeys are the keys of a listener's session tickets. A process gives them to the process that
// takes over its sockets, so that clients resume their sessions there. They are kept only in
// memory.
type TicketKeys struct {
	mu   sync.Mutex // guards keys
	keys []ticketKey
}

// ticketKey is a key, in the form in which a hand-over sends it.
type ticketKey struct {
	Made time.Time
	Key  []byte // ticketKeyBytes
}

const ticketKeyBytes = 32

// current returns the keys, newest first, after it has made a new key if necessary. At the time until, the keys change:
// either the newest key becomes too old to encrypt, or the oldest key too old to decrypt.
func (t *TicketKeys) current() (keys []ticketKey, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if len(t.keys) == 0 || now.Sub(t.keys[0].Made) >= ticketKeyRotation {
		k := ticketKey{now, make([]byte, ticketKeyBytes)}
		rand.Read(k.Key)
		t.keys = append([]ticketKey{k}, t.keys...)
	}
	for n := len(t.keys); n > maxTicketKeys || now.Sub(t.keys[n-1].Made) >= maxTicketKeys*ticketKeyRotation; n-- {
		t.keys = t.keys[:n-1]
	}
	until = t.keys[0].Made.Add(ticketKeyRotation)
	if dropped := t.keys[len(t.keys)-1].Made.Add(maxTicketKeys * ticketKeyRotation); dropped.Before(until) {
		until = dropped
	}
	return t.keys, until
}

// adopt replaces the keys by handed, the keys of the previous process. If any key of handed is invalid, adopt changes
// nothing.
func (t *TicketKeys) adopt(handed []ticketKey) {
	if len(handed) == 0 || len(handed) > maxTicketKeys {
		return
	}
	now := time.Now()
	keys := make([]ticketKey, len(handed))
	for i, k := range handed {
		if len(k.Key) != ticketKeyBytes {
			return
		}
		if k.Made.After(now) { // the clock was set back
			k.Made = now
		}
		keys[i] = k
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys = keys
}

// forTLS derives the keys for crypto/tls. The derived keys depend on the certificate authorities that m trusts for
// client certificates, and on the policy, so a change of either makes older tickets unusable. crypto/tls also checks the
// client's certificate in a ticket.
func forTLS(keys []ticketKey, m *configfile.Material, p handshake.Policy) [][ticketKeyBytes]byte {
	all := make([][ticketKeyBytes]byte, len(keys))
	for i, k := range keys {
		h := hmac.New(sha256.New, k.Key)
		h.Write(m.AuthoritiesDigest[:])
		text := binary.BigEndian.AppendUint16(nil, p.MinVersion)
		for _, g := range p.Groups {
			text = binary.BigEndian.AppendUint16(text, uint16(g))
		}
		h.Write(text)
		h.Sum(all[i][:0])
	}
	return all
}
