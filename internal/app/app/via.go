package app

import (
	"crypto/rand"
	"encoding/hex"

	"adbuffer/internal/wire/header"
)

// newVia returns a random name for Via. A host name or a process id would show SSPs more about the
// machine.
func newVia() string {
	var id [8]byte
	rand.Read(id[:])
	return header.ViaName(hex.EncodeToString(id[:]))
}
