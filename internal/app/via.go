package app

import (
	"crypto/rand"
	"encoding/hex"

	"adbuffer/internal/httpheader"
)

// newVia returns a name for Via that no other process has. It is random: a host's
// name or a process number would tell SSPs more than they need, and may be shared
// by containers. A reload keeps it; a process that takes over has its own, so that
// requests between the two are no loop.
func newVia() string {
	var id [8]byte
	rand.Read(id[:]) //nolint:errcheck // it never fails
	return httpheader.ViaName(hex.EncodeToString(id[:]))
}
