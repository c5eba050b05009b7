"""Hosts and addresses, each with the expected outcome of a request to it."""

from __future__ import annotations


def words(text: str) -> list[str]:
    return text.split()


PUBLIC = words("""
1.1.1.1 8.8.8.8 9.9.9.9 9.255.255.255 11.0.0.0 23.192.228.80 52.95.110.1 93.184.215.14 100.63.255.255 100.128.0.0
104.16.132.229 126.255.255.255 128.0.0.0 128.0.0.1 161.25.255.255
166.12.0.0 168.63.129.15 168.63.129.17 140.82.121.4 142.250.79.46 151.101.1.69 169.253.255.255 169.255.0.0
172.15.255.255 172.32.0.0 185.199.108.153 191.255.255.255 192.0.1.0 192.0.3.0 192.31.195.255 192.31.197.0 192.52.194.0
192.88.98.255 192.88.100.0 192.167.255.255 192.169.0.0 192.175.47.255 198.17.255.255 198.20.0.0 198.51.99.255
198.51.101.0 200.160.2.3 203.0.112.255 203.0.114.0 216.58.202.14 223.255.255.255
2001:200::1 2001:4860:4860::8888 2001:4860:4860::8844 2001:db7:ffff::1 2001:db9::1 2003::1 2400:cb00:2048:1::1
2606:4700:4700::1111 2606:4700:4700::1001 2620:fe::fe 2800:3f0:4001::200e 2a00:1450:4001:81b::200e 2a04:4e42::223
3ffe::1 2001:ffff::1 3fff:1000::1 ::ffff:8.8.8.8 ::ffff:1.1.1.1
""")

NOT_PUBLIC = words("""
0.0.0.0 0.0.0.1 0.1.2.3 0.255.255.255 10.0.0.0 10.0.0.1 10.1.2.3 10.96.0.1 10.255.255.255 100.64.0.0 100.64.0.1
100.100.100.200 100.127.255.255 127.0.0.0 127.0.0.1 127.0.0.53 127.0.1.1 127.1.1.1 127.255.255.254 127.255.255.255
161.26.0.10 166.11.255.255 168.63.129.16
169.254.0.0 169.254.0.1 169.254.169.123 169.254.169.253 169.254.169.254 169.254.170.2 169.254.255.255 172.16.0.0
172.16.0.1 172.17.0.1 172.20.10.1 172.31.255.255 192.0.0.0 192.0.0.1 192.0.0.8 192.0.0.9 192.0.0.10 192.0.0.170
192.0.0.192 192.0.0.255 192.0.2.0 192.0.2.1 192.0.2.255 192.31.196.1 192.52.193.1 192.88.99.0 192.88.99.1 192.88.99.2
192.168.0.0 192.168.0.1 192.168.1.1 192.168.122.1 192.168.255.255 192.175.48.1 198.18.0.0 198.18.0.1 198.19.255.255
198.51.100.0 198.51.100.1 198.51.100.255 203.0.113.0 203.0.113.1 203.0.113.255 224.0.0.0 224.0.0.1 224.0.0.251
233.252.0.1 239.255.255.250 240.0.0.0 240.0.0.1 250.1.2.3 255.255.255.254 255.255.255.255
:: ::1 ::2 ::7f00:1 ::127.0.0.1 ::10.0.0.1 ::8.8.8.8 ::ffff:0:127.0.0.1 ::ffff:0:8.8.8.8
::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:192.168.1.1 ::ffff:0.0.0.0
::ffff:100.64.0.1 ::ffff:192.0.2.1 ::ffff:224.0.0.1 ::ffff:255.255.255.255
64:ff9b::127.0.0.1 64:ff9b::a00:1 64:ff9b::a9fe:a9fe 64:ff9b::8.8.8.8 64:ff9b:1::1 64:ff9b:1:ffff::a9fe:a9fe
100::1 100::ffff:1 100:0:0:1::1 200::1 400::1 1000::1 1fff:ffff::1
2001::1 2001:0:7f00:1:: 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:1::1 2001:1::2 2001:2::1 2001:3::1 2001:4:112::1
2001:5::1 2001:10::1 2001:20::1 2001:1ff::1 2001:db8::1 2001:db8:ffff::1
2002:7f00:1::1 2002:a00:1::1 2002:a9fe:a9fe::1 2002:c0a8:101::1 2002:808:808::1 3fff::1 3fff:fff::1
4000::1 5f00::1 5f00:1::1 6000::1 8000::1 c000::1 f000::1 fb00::1
fc00::1 fc00:ec2::254 fd00::1 fd00:ec2::254 fd12:3456:789a::1 fdff::1 fe00::1 fe80::1 fe80::a9fe:a9fe
fe9f::1 febf::1 fec0::1 feff::1 ff00::1 ff01::1 ff02::1 ff02::fb ff05::2 ff0e::1 ffff::1
""")

# What resolvers read as addresses though nobody writes them so.
ODD_SPELLINGS = words("""
127.1 127.0.1 2130706433 017700000001 0x7f000001 0x7f.1 0x7f.0.0.1 0177.0.0.1 0177.1 127.0.0.0x1 10.1 0xa.0.0.1
012.0.0.1 167772161 0 0x0 00 3232235777 0xc0a80101 192.168.257 2852039166 0xa9fea9fe 169.16689662 0251.0376.0251.0376
0xA9.0xFE.0xA9.0xFE 169.254.43518 172.1048577 127.0.0.1. 10.0.0.1.
""")

PRIVATE_NAMES = words("""
localhost LOCALHOST localhost. LocalHost a.localhost deep.down.localhost localhost.localdomain router.local
printer.local metadata.google.internal METADATA.GOOGLE.INTERNAL
metadata instance-data kubernetes kubernetes.default.svc.cluster.local
db postgres redis host.docker.internal gateway.docker.internal intranet wiki.intranet nas.lan box.home ad.corp
1.0.0.127.in-addr.arpa
""")

# Whole URLs that no parser may read in two ways, or that are no web addresses.
BAD_URLS = [
    "",
    "example.com",
    "//example.com/",
    "https:example.com",
    "https:/example.com",
    "https://",
    "https:///path",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "data:text/plain,hello",
    "javascript:alert(1)",
    "ws://example.com/",
    "unix:///var/run/docker.sock",
    "https://user@example.com/",
    "https://user:password@example.com/",
    "https://:password@example.com/",
    "https://@example.com/",
    "https://example.com@169.254.169.254/",
    "https://example.com\\@169.254.169.254/",
    "https://169.254.169.254\\@example.com/",
    "https://example.com#@169.254.169.254:99999/",
    "https://exa mple.com/",
    "https://example.com/a b",
    "https://example.com/\n",
    "https://exam\tple.com/",
    "https://example.com/\r\nHost: other",
    "https://example.com:0/",
    "https://example.com:65536/",
    "https://example.com:-1/",
    "https://example.com:port/",
    "https://[::1/",
    "https://[::1]x/",
    "https://[fe80::1%25eth0]/",
    "https://[fe80::1%eth0]/",
    "https://[v1.x]/",
    "https://exa%6dple.com/",
    "https://127.0.0.1%2f@example.com/",
    "https://-example.com/",
    "https://exam..ple.com/",
    "https://.example.com/",
    "https://" + "a" * 64 + ".com/",
    "https://" + "a." * 130 + "com/",
    "https://example.com/" + "a" * 2_000,
    "https://①②⑦.⓪.⓪.①/",
    "https://ⓛocalhost/",
]

GOOD_URLS = [
    "https://example.com",
    "https://example.com/",
    "https://EXAMPLE.com/Hook?token=a%20b",
    "https://example.com:443/",
    "https://example.com:80/",
    "https://hooks.example.com./a",
    "https://münchen.example.de/",
    "https://xn--mnchen-3ya.example.de/",
    "https://a_b.example.com/",
    "https://93.184.215.14/hook",
    "https://[2606:4700:4700::1111]/hook",
    "https://example.com/callback?url=http://127.0.0.1/",
    "https://127.0.0.1.example.com/",
    "https://10.0.0.1.nip.example/",
    "https://localhost.example.com/",
]
