package app

import (
	"crypto/rand"
	"encoding/hex"

	"adbuffer/internal/httpheader"
)

// newVia returns a random name for Via. A host name or a process id would tell SSPs more
// than they need, and containers may share them. A reload keeps the name. A new process
// that takes over has its own, so requests between the two processes are no loop.
func newVia() string {
	var id [8]byte
	rand.Read(id[:]) //nolint:errcheck // it never fails
	return httpheader.ViaName(hex.EncodeToString(id[:]))
}
