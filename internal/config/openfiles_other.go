//go:build !unix

package config

// openFilesLimit is 0, unknown, on systems without ulimit.
func openFilesLimit() int { return 0 }
