"""Filters the readings of many sensors with one linear-Gaussian model, all sensors at a time."""

import torch
from tracking_model import tracking_model

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SERIES, TIMES, STATES, OUTPUTS = (16384, 20, 32, 8) if DEVICE == "cuda" else (64, 80, 12, 4)


class KalmanFilter:
    def __init__(self, transition, emission, process_noise, sensor_noise, prior):
        self.transition = transition
        self.emission = emission
        self.process_noise = process_noise
        self.sensor_noise = sensor_noise
        self.prior = prior

    def predict(self, mean, covariance):
        mean = mean @ self.transition.mT
        covariance = self.transition @ covariance @ self.transition.mT + self.process_noise
        return mean, covariance

    def update(self, mean, covariance, reading):
        cross = self.emission @ covariance
        innovation_covariance = cross @ self.emission.mT + self.sensor_noise
        gain = torch.linalg.solve(innovation_covariance, cross)
        innovation = reading - mean @ self.emission.mT
        mean = mean + (innovation.unsqueeze(1) @ gain).squeeze(1)
        return mean, covariance - gain.mT @ cross

    def filter(self, readings):
        mean = readings.new_zeros(readings.shape[0], self.prior.shape[0])
        covariance = self.prior.repeat(readings.shape[0], 1, 1)
        means = []
        for reading in readings.unbind(dim=1):
            mean, covariance = self.predict(mean, covariance)
            mean, covariance = self.update(mean, covariance, reading)
            means.append(mean)
        return torch.stack(means, dim=1)


def build():
    matrices = {name: matrix.to(DEVICE) for name, matrix in tracking_model(STATES, OUTPUTS).items()}
    tracker = KalmanFilter(**matrices)
    torch.manual_seed(0)
    readings = torch.randn(SERIES, TIMES, OUTPUTS).to(DEVICE)

    @torch.no_grad()
    def step():
        return tracker.filter(readings)

    return step
