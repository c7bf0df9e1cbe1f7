"""python3 manyresponses.py URL STREAMS: many large responses at once over one HTTP/2 connection; 5 %
of the requests are cancelled. It exits with 0 if each other response was whole."""
import asyncio
import sys

import httpx

url, streams = sys.argv[1], int(sys.argv[2])


async def main():
    limits = httpx.Limits(max_connections=1)
    numbers = iter(range(streams))
    async with httpx.AsyncClient(http1=False, http2=True, verify=False, timeout=60, limits=limits) as client:

        async def get(i):
            size, got = 3000 + i * 7919 % 47000, 0
            async with client.stream("GET", url, params={"n": size}) as r:
                assert r.status_code == 200, r.status_code
                async for part in r.aiter_raw():
                    got += len(part)
                    if i % 20 == 1:
                        return
            assert got == size, f"{got} of {size} bytes"

        async def worker():
            for i in numbers:
                await get(i)

        await asyncio.gather(*[worker() for _ in range(100)])


asyncio.run(main())
