# Event detection by template correlation in the frequency domain.
import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cuda":
    n_sta, n_tpl, n_x = 24, 16, 200_300
else:
    n_sta, n_tpl, n_x = 6, 4, 20_000
n_t = 400


def smooth_length(least):
    """The next number, from `least` on, that has no prime factor above 5."""
    n = least
    while True:
        rest = n
        for p in (2, 3, 5):
            while rest % p == 0:
                rest //= p
        if rest == 1:
            return n
        n += 1


def prepare(tpl, length):
    tpl = tpl - tpl.mean(-1, keepdim=True)
    tpl = F.normalize(tpl, dim=-1)
    return torch.conj_physical(torch.fft.rfft(tpl, length))


def bandpass(x, taps):
    x = x - torch.mean(x, -1, True)
    y = F.conv1d(x[:, None], taps[None, None], padding=taps.shape[0] // 2)
    return y[:, 0]


def running_norm(x):
    s = F.pad(torch.cumsum(x.double() ** 2, -1), (1, 0))
    e = s[:, n_t:] - s[:, :-n_t]
    return torch.sqrt(torch.clamp(e, min=1e-12)).to(x.dtype)


def correlate(x, tpl_f, length):
    xf = torch.fft.rfft(x, length)
    cc = torch.fft.irfft(xf[None] * tpl_f, length)
    cc = cc[:, :, : n_x - n_t + 1]
    return torch.div(cc, running_norm(x))


def build():
    torch.manual_seed(0)
    tpl = torch.randn(n_tpl, n_sta, n_t)
    x = torch.randn(n_sta, n_x)
    taps = torch.randn(41) / 41
    kernel = torch.randn(24, n_tpl, 15) / 10
    for k in range(n_tpl):
        at = (k + 1) * n_x // (n_tpl + 2)
        x[:, at : at + n_t].add_(tpl[k])

    length = smooth_length(n_x + n_t - 1)
    tpl_f = prepare(tpl, length).to(DEVICE)
    x, taps, kernel = x.to(DEVICE), taps.to(DEVICE), kernel.to(DEVICE)

    @torch.no_grad()
    def step():
        cc = correlate(bandpass(x, taps), tpl_f, length)
        network = torch.mean(cc, dim=1)
        picks = F.relu(F.conv1d(network[None], kernel))
        return network, network.max(-1).values, torch.std(network, -1), picks.mean(-1)

    return step
