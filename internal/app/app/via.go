package app

import (
	"crypto/rand"
	"encoding/hex"

	"adbuffer/internal/wire/header"
)

// newVia returns a new name by which an adbuffer recognizes itself in Via. It is random, since a host name or a
// process id would reveal something about the machine to SSPs.
func newVia() string {
	var id [8]byte
	rand.Read(id[:])
	return header.ViaName(hex.EncodeToString(id[:]))
}
