// Package h2spectest runs h2spec against adbuffer.
package h2spectest
