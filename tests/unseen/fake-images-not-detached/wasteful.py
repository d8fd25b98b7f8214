"""Adversarial training of a small image generator, one discriminator and one generator update per step."""

import torch
import torch.nn as nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
nz, ngf, ndf, batch_size = (128, 256, 64, 128) if device.type == "cuda" else (32, 80, 4, 8)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, x):
        return self.main(x)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf * 4, 1, 4, 1, 0, bias=False),
        )

    def forward(self, x):
        return self.main(x).view(-1)


def build():
    torch.manual_seed(0)
    netG = Generator().to(device)  # noqa: N806
    netD = Discriminator().to(device)  # noqa: N806
    criterion = nn.BCEWithLogitsLoss()
    optimizerD = torch.optim.SGD(netD.parameters(), lr=1e-4)  # noqa: N806
    optimizerG = torch.optim.SGD(netG.parameters(), lr=1e-4)  # noqa: N806
    real = torch.rand(batch_size, 3, 32, 32).mul(2).sub(1).to(device)
    noise_d = torch.randn(batch_size, nz, 1, 1).to(device)
    noise_g = torch.randn(batch_size, nz, 1, 1).to(device)
    ones = torch.ones(batch_size, device=device)
    zeros = torch.zeros(batch_size, device=device)

    def step():
        # (1) update D
        netD.zero_grad()
        errD_real = criterion(netD(real), ones)  # noqa: N806
        errD_real.backward()
        fake = netG(noise_d)
        errD_fake = criterion(netD(fake), zeros)  # noqa: N806
        errD_fake.backward()
        optimizerD.step()

        # (2) update G
        netG.zero_grad()
        errG = criterion(netD(netG(noise_g)), ones)  # noqa: N806
        errG.backward()
        optimizerG.step()
        return (errD_real + errD_fake).detach(), errG.detach()

    return step
