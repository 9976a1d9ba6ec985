# One image: its command chooses API (`serve`) or worker (`worker`).
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY requirements-service.txt ./
RUN python -m venv /opt/chipfit \
    && /opt/chipfit/bin/python -m pip install --no-cache-dir --require-hashes -r requirements-service.txt
COPY pyproject.toml README.md LICENSE ./
COPY models ./models
COPY explorer ./explorer
COPY service ./service
RUN /opt/chipfit/bin/python -m pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/chipfit chipfit
COPY --from=build /opt/chipfit /opt/chipfit
ENV PATH=/opt/chipfit/bin:$PATH \
    CHIPFIT_DATA_DIR=/var/lib/chipfit \
    OMP_NUM_THREADS=1 \
    OPENBLAS_NUM_THREADS=1 \
    NUMBA_NUM_THREADS=1
USER 10001
WORKDIR /var/lib/chipfit
VOLUME /var/lib/chipfit
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s CMD chipfit health
ENTRYPOINT ["chipfit"]
CMD ["serve", "--host", "0.0.0.0"]
