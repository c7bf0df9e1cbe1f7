package http2codec

import "golang.org/x/net/http2/hpack"

// adFields are the header fields of a typical ad request.
const adFields = "User-Agent: Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Mobile Safari/537.36\r\n" +
	"Accept: */*\r\n" +
	"Accept-Encoding: gzip, deflate, br\r\n" +
	"Accept-Language: en-US,en;q=0.9\r\n" +
	"Referer: https://news.example/article/12345\r\n" +
	"X-Openrtb-Version: 2.6\r\n" +
	"X-Forwarded-For: 203.0.113.7\r\n"

// responseFields are the fields of a typical response.
var responseFields = []hpack.HeaderField{
	{Name: ":status", Value: "200"},
	{Name: "server", Value: "nginx/1.22.1"},
	{Name: "date", Value: "Sat, 21 Nov 2026 09:00:00 GMT"},
	{Name: "content-type", Value: "application/json"},
	{Name: "content-length", Value: "1000"},
	{Name: "cache-control", Value: "no-store"},
	{Name: "x-unique", Value: "6f2f1f3a9f0a4b0c8d7e6f5a4b3c2d1e"},
}
