// Command prototypes is two proxies that adbuffer is compared with.
//
//	prototypes sketch        fasthttp, with one client of 2 048 connections a host
//	prototypes reverseproxy  net/http/httputil's ReverseProxy, as a careful user sets it
package main

import (
	"log"
	"os"
)

func main() {
	serve := map[string]func(args []string) error{"sketch": sketch, "reverseproxy": reverseProxy}
	if len(os.Args) < 2 || serve[os.Args[1]] == nil {
		log.Fatal("usage: prototypes sketch|reverseproxy FLAGS")
	}
	log.Fatal(serve[os.Args[1]](os.Args[2:]))
}
